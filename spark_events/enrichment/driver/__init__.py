"""What accompanies a batch. Runs on the driver: checkpoint, reports, cancellation, replay, rate."""
