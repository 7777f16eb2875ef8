"""The command line, `serde-lab`: one module for each group of commands."""
