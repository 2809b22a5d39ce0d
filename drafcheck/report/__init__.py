"""The ways a report is shown: full and concise text, JSON, the plans as tables."""
