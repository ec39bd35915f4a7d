//go:build race

package smtpclient

const raceDetector = true
