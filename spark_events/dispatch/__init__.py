"""Dispatch of events to reporters; each reporter has its own mailbox and delivery."""
