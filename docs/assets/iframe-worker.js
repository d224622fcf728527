/* Search in a page that is opened from disk. A browser starts no worker from a file, so the worker's script runs in a
   hidden frame. The name says 'iframe-worker' because the plugin 'offline' looks for it before it adds one of its own. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((resolve) => {
        const element = inside.document.createElement("script");
        element.src = new URL(script, location.href);
        element.onload = resolve;
        inside.document.body.append(element);
      });
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.loaded.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
