// What Material leaves without a name or out of the keyboard's reach.
function complete() {
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((bar) => {
    const all = [...document.querySelectorAll("nav.md-code__nav")];
    bar.setAttribute("aria-label", `Code block ${all.indexOf(bar) + 1}`);
  });
  document.querySelectorAll(".md-search[role=dialog]:not([aria-label])").forEach((box) => box.setAttribute("aria-label", "Search"));
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((table) => table.setAttribute("tabindex", "0"));
}
new MutationObserver(complete).observe(document.documentElement, { childList: true, subtree: true });
complete();
