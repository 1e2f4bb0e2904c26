"""Words <-> tokens: tokenizers, chat templates, incremental detokenisation and stop strings.

Everything here is plain Python over two libraries (`tokenizers`, `sentencepiece`) and jinja2; it knows no
model, no engine and no device.
"""
