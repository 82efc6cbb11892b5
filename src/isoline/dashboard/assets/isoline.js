// Runs in the browser without asking the server: the small screen's switch for the controls.
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  isoline: {
    toggle: function (clicks) {
      const open = (clicks || 0) % 2 === 1;
      return [open ? "controls open" : "controls", open ? "true" : "false"];
    },
  },
});
