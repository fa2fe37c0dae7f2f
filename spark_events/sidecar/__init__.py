"""Sidecar: the process next to the driver, from the pipe with the shim's records to the acknowledgements."""
