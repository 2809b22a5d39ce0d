"""All families of heads, by name."""

from __future__ import annotations

import mtp_heads
import mtp_heads_later
import mtp_heads_latest
import mtp_heads_vllm

FAMILIES = mtp_heads.FAMILIES | mtp_heads_later.LATER | mtp_heads_vllm.OF_VLLM | mtp_heads_latest.LATEST
