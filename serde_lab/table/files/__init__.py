"""Base files and log files: names, contents, and the view that readers take of them."""
