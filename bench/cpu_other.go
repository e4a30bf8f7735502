//go:build !linux

package main

func cpuModel() string { return "" }
