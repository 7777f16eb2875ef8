"""Base files and log files: names, contents, and the view of them that readers have."""
