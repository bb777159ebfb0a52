"""Make the picture of the guide `3d`: python docs/pictures/space.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("guides/3d.md", "space.png", width=480)
