"""Events on disk, for reporters with ``delivery.guarantee=at-least-once``."""
