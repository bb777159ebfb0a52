"""Make the picture of the guide `profiling`: python docs/pictures/overlay.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("guides/profiling.md", "overlay.png", width=400)
