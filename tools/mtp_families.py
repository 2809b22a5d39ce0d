"""All families of heads, by name."""

from __future__ import annotations

import mtp_heads
import mtp_heads_later

FAMILIES = mtp_heads.FAMILIES | mtp_heads_later.LATER
