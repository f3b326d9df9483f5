"""The command line: one file a verb, no logic, nothing heavy imported before it is needed."""
