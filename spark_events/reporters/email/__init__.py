"""Reporter ``email``: alerts, recoveries and digests by SMTP."""
