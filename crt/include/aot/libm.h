/* What kernels of floats call of the C library, declared here because a freestanding compiler need not have <math.h>.  All but exp are
 * exact or correctly rounded in every C library; exp is for the boxes of Detection_PostProcess only,
 * log for Mfcc. */
#ifndef AOT_LIBM_H
#define AOT_LIBM_H

float ceilf(float x);
float floorf(float x);
float fmodf(float x, float y);
float rintf(float x);
float sqrtf(float x);
double exp(double x);
double log(double x);
double sqrt(double x);

#endif
