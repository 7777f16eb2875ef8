"""Sets up, starts and stops the Spark sessions of a run, and packs the workers' environment."""
