"""Tests, intervals and levels that verdicts rest on."""
