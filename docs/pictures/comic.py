"""Make the picture of the guide `textures-and-image-effects`: python docs/pictures/comic.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("guides/textures-and-image-effects.md", "comic.png", width=480)
