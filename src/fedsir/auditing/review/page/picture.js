// Pictures: fetched ahead, kept for a while, shown in a window that zooms and scrolls.

const KEPT = { image: 16, thumbnail: 160 };
const SMALLEST = 320; // CSS pixels of the longer side, if there is room
const MOST_ENLARGED = 8; // times, beyond that; zoom goes further
const LEVELS = [1, 1.5, 2, 3, 4, 6, 8, 12, 16];

// What the server has for a sample: {url} of a picture, or {problem} in words.
export class Pictures {
  constructor() {
    this.kept = { image: new Map(), thumbnail: new Map() };
  }

  get(kind, index) {
    const kept = this.kept[kind];
    const found = kept.get(index) ?? this.load(kind, index);
    kept.delete(index); // again at the end: the one that was not wanted for longest goes first
    kept.set(index, found);
    for (const [old, picture] of kept) {
      if (kept.size <= KEPT[kind]) break;
      kept.delete(old);
      picture.then(({ url }) => url && URL.revokeObjectURL(url));
    }
    return found;
  }

  async load(kind, index) {
    try {
      const answer = await fetch(`${kind}/${index}`);
      if ((answer.headers.get("Content-Type") ?? "").startsWith("image/")) {
        return { url: URL.createObjectURL(await answer.blob()) };
      }
      return { problem: (await answer.json()).problem };
    } catch {
      this.kept[kind].delete(index); // it may come next time
      return { problem: "The image could not be loaded: the review does not answer." };
    }
  }
}

export class Stage {
  constructor(viewport, level, pixels) {
    Object.assign(this, { viewport, level, pixels, zoom: 1, image: null, shown: -1 });
    new ResizeObserver(() => this.layOut()).observe(viewport);
    viewport.addEventListener("wheel", (event) => {
      if (!this.image) return;
      event.preventDefault();
      this.step(event.deltaY < 0 ? 1 : -1, event);
    }, { passive: false });
    viewport.addEventListener("dblclick", (event) => this.setZoom(this.zoom === 1 ? 3 : 1, event));
    viewport.addEventListener("pointerdown", (event) => this.drag(event));
  }

  // Show a sample's picture, or say why there is none. Zoom stays: the next one may need the same look.
  async show(index, pictures, description) {
    this.shown = index;
    const slow = setTimeout(() => index === this.shown && this.say("Loading …"), 150);
    const { url, problem } = await pictures.get("image", index);
    clearTimeout(slow);
    if (index !== this.shown) return;
    if (problem) {
      this.say(problem, true);
      return;
    }
    const image = new Image();
    image.alt = description;
    image.draggable = false;
    image.src = url;
    try {
      await image.decode();
    } catch {
      if (index === this.shown) this.say("The browser cannot show this image.", true);
      return;
    }
    if (index !== this.shown) return;
    this.image = image;
    this.viewport.replaceChildren(image);
    this.pixels.textContent = `${image.naturalWidth} × ${image.naturalHeight} pixels`;
    this.layOut();
  }

  say(words, isProblem = false) {
    this.image = null;
    const box = document.createElement("p");
    box.className = isProblem ? "placeholder broken" : "placeholder";
    box.textContent = words;
    this.viewport.replaceChildren(box);
    this.pixels.textContent = "";
    this.layOut();
  }

  layOut() {
    this.level.textContent = this.zoom === 1 ? "fit" : `${this.zoom}×`;
    this.viewport.classList.toggle("zoomed", this.zoom > 1 && this.image !== null);
    if (!this.image) return;
    const { naturalWidth: width, naturalHeight: height } = this.image;
    const room = this.viewport.getBoundingClientRect();
    const whole = Math.min((room.width - 2) / width, (room.height - 2) / height);
    // A tiny image as large as the window is a blur that nobody recognises.
    const fit = Math.min(whole, Math.max(SMALLEST / Math.max(width, height), MOST_ENLARGED));
    this.image.width = Math.max(1, Math.floor(width * fit * this.zoom));
    this.image.height = Math.max(1, Math.floor(height * fit * this.zoom));
    // A small image is easier to recognise smooth; somebody who zooms in wants to see its pixels.
    this.image.classList.toggle("squares", this.zoom > 1 && fit * this.zoom > 6);
  }

  // Zoom, and keep what is under the pointer, else the middle, where it is.
  setZoom(zoom, event) {
    if (!this.image) {
      this.zoom = zoom;
      this.layOut();
      return;
    }
    const room = this.viewport.getBoundingClientRect();
    const x = event ? event.clientX : room.left + room.width / 2;
    const y = event ? event.clientY : room.top + room.height / 2;
    const before = this.image.getBoundingClientRect();
    const within = (share) => Math.min(Math.max(share, 0), 1);
    const across = within((x - before.left) / before.width);
    const down = within((y - before.top) / before.height);
    this.zoom = zoom;
    this.layOut();
    const after = this.image.getBoundingClientRect();
    this.viewport.scrollBy({
      left: after.left + across * after.width - x, top: after.top + down * after.height - y, behavior: "instant",
    });
  }

  step(direction, event) {
    const now = LEVELS.indexOf(this.zoom);
    this.setZoom(LEVELS[Math.min(Math.max(now + direction, 0), LEVELS.length - 1)], event);
  }

  // Z: twice, four times, eight times, whole again.
  cycle() {
    this.setZoom(this.zoom >= 8 ? 1 : [2, 4, 8].find((level) => level > this.zoom));
  }

  pan(x, y) {
    const { viewport } = this;
    viewport.scrollBy({ left: x * viewport.clientWidth * 0.2, top: y * viewport.clientHeight * 0.2, behavior: "instant" });
  }

  drag(event) {
    if (event.pointerType !== "mouse" || event.button !== 0 || this.zoom === 1) return;
    const { viewport } = this;
    const from = { x: event.clientX + viewport.scrollLeft, y: event.clientY + viewport.scrollTop };
    const move = (moved) => viewport.scrollTo({ left: from.x - moved.clientX, top: from.y - moved.clientY, behavior: "instant" });
    const end = () => viewport.removeEventListener("pointermove", move);
    viewport.setPointerCapture(event.pointerId);
    viewport.addEventListener("pointermove", move);
    viewport.addEventListener("pointerup", end, { once: true });
    viewport.addEventListener("pointercancel", end, { once: true });
  }
}
