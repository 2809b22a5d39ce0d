"""Repairs without loss: findings become edits, edits a mended checkpoint, and that new files."""
