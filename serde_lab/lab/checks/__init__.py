"""The checks that a cell passes before its timing counts."""
