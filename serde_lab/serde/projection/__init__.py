"""Projects records of one schema to another: the plan, and its application to columns and values."""
