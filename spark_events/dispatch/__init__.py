"""From Events to reporters: the dispatcher fans out, each reporter has a mailbox and a delivery of its own."""
