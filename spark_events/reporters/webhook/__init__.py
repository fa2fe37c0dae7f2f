"""Reporter ``webhook``: HTTP requests to chat, paging and event systems."""
