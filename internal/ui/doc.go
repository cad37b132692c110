// Package ui is the page in the browser: its files, and how they are served below /ui/
// (docs/adr/0089-the-page-is-files-and-the-api.md).
//
// In: requests for files. Out: the files, the same for everybody. They hold no secrets: the page
// calls the API as its user (package auth/session), and knows only the answers.
//
// files/js holds one module per concern: api.js calls the API, live.js keeps a list current by a
// watch, grid.js draws the visible rows of a list, and view-*.js are the views. files/i18n holds
// one dictionary per language. The browser runs the files as they are; no step builds them.
package ui
