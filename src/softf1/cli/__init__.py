"""The command line: one file per verb, no logic, nothing heavy imported before it is needed."""
