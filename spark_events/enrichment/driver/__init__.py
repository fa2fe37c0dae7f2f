"""The part that runs in the driver beside a batch: checkpoint, reports, cancellation, replay, rate."""
