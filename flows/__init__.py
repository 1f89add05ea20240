"""The top layer: configuration, Prefect tasks and flow, report, command line."""
