"""Work on the driver for a batch: checkpoint, reports, cancellation, replay, limits."""
