package protocol

// Slots is how many slots a cluster has.
const Slots = 16384

// Slot is the slot of a key or a shard channel in a cluster: CRC16 (XMODEM) of its hash tag, or of all of
// it where it has none.
func Slot(key string) int {
	if tag := hashTag(key); tag != "" {
		key = tag[1 : len(tag)-1]
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % Slots)
}
