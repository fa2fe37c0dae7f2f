"""Driver-side work for a batch: checkpoint, reports, cancellation, replay, limits."""
