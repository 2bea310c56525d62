"""`fedsir audit review`: a page on this machine where a person goes through suspicious labels.

session.py   which samples, what was decided, and how a decision is taken; no network
images.py    the picture of a sample, from the original data
server.py    the page over HTTP, for one person: 127.0.0.1, a token in every address
page/        what the browser gets: HTML, style, scripts
"""
