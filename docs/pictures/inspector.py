"""Make the picture of the guide `inspector`: python docs/pictures/inspector.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("guides/inspector.md", "inspector.png")
