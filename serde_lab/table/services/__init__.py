"""Compaction, cleaning, archiving, rollback and resizing, as plans on storage."""
