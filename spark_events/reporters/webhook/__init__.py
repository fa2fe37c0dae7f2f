"""``webhook``: events as HTTP requests, in the forms that chat, paging and event systems understand."""
