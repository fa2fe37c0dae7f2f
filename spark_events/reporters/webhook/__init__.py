"""Reporter ``webhook``: HTTP requests for chat, paging and event systems."""
