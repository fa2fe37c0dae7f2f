"""Alerts: open, damp and close alerts at services and in chats.

::

    event ─▶ sender ─▶ store ─▶ states      which alerts are open, and whether an event is sent, counted or deferred
               │         └────▶ memory ─▶ files       the known alerts; the files are shared by all drivers
               └──▶ pagerduty, alertmanager, chats     request bodies
"""
