"""Signal processing: the operators of TFLM's audio front end, spectra of real signals, features of speech."""
