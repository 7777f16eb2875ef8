"""Which record of a key survives, and what it holds: rules, combiners, mergers, Hudi's payloads."""
