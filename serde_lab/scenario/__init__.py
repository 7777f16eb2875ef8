"""A scenario: the TOML file that says what is asked. `loading.load_scenario` reads one.

Knows what a scenario may say and which of it can stand together. Must not know how any of it is
done: neither strategies nor tables nor Spark.
"""
