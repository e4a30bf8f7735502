//go:build !linux

package main

import "errors"

func pin(...int) error { return errors.New("processes can be kept to a core on Linux only") }
