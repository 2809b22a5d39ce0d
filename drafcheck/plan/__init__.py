"""The three plans: what the engine will load, how it will be fed, what its vocabulary means."""
