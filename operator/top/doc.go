// Package top shows a running relay on a terminal, and steers it: rates, the queue by state, alarms, and tables of what
// mail goes to and comes from, refreshed every few seconds.
//
// The parts, in the order of a key press: run.go has the terminal, the clock and the requests; it hands each event to
// Model.update, which changes the Model and returns the requests that follow from it; draw.go draws the Model on a
// canvas, which run.go copies to the terminal. Model and canvas know no terminal, no clock and no relay.
//
// All text comes from the canvas, and the canvas makes hidden characters of all text visible: what strangers wrote
// can't drive the terminal.
package top
