"""Disk spool of a reporter with ``delivery.guarantee=at-least-once``.

On disk, below ``spool.directory``::

    shop-3f2a9c01/          application: its name, and a hash of it
    ├── audit.0.lock        flock held by the file's owner; contains the identity of the owner's driver
    ├── audit.0/            spool file of a dead owner
    │   ├── events.db       SQLite: events(id, event_id UNIQUE, priority, accepted, event)
    │   └── events.db-wal
    ├── audit.1.lock
    ├── audit.1/            own file: the newest file without an owner, else a new file
    └── audit.2.corrupt-1767225600000000000/     set aside, never read again

In memory::

                       ┌────────── kept ───────────┐
                       │                           ▼
    put ─▶ mailbox ─ write ─▶ own file ─ read ─▶ ready ─ take ─▶ taken ─ settle ─▶ row deleted
           bounded,              ▲               bounded         by the reporter's thread
           sheds by priority     └─ read last: first the files of dead owners, oldest first

Written events are kept in ``ready``, unless a dead owner's file or unread rows remain, or ``ready`` is full.

The spool writer, one thread for each spool, performs all disk accesses. The dispatcher and the reporter's thread use
only memory, under one lock that is never held during I/O.

Invariants:

1. A record is acknowledged to the driver once its events are committed to a file, or settled.
2. A row is deleted only after its event was settled. After a crash between settling and deletion, the event is
   delivered again, with the same ``event_id``. A file never contains an ``event_id`` twice.
3. Only one process at a time uses a file: the owner of its lock. The system releases the lock when the process exits.
   While the file's driver is alive, only a sidecar of that driver acquires the file.
4. Rows are read and deleted in place; no row is copied from one file into another. Files are read in the order of their
   numbers, the process's own file last; rows are read in the order of their ids.
5. Newer events never overtake rows that are only on disk. Without such rows, the reporter receives events from the
   mailbox while the disk fails or hangs.
6. A file grows to ``spool.max-size`` plus one write. Beyond that, rows of the lowest priority are shed first; among
   these, the oldest first.
7. A corrupt file is renamed, logged, counted as ``spool-corrupt`` and skipped; no row of it is rescued.
8. ``accepted = delivered + dropped by reason + spooled + held``, at every moment.
"""
