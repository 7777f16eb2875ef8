"""How records become a Hudi table: stages and exchanges, the coordinator, reads and table services."""
