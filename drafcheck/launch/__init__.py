"""Reading launch lines: scripts, containers and manifests that start an engine. Nothing in them is ever run."""
