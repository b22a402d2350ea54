/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of floats call of the C library, declared here because a freestanding compiler need not have <math.h>.  All but
 * exp, log, log1p and pow are exact or correctly rounded in every C library; these are for the boxes of Detection_PostProcess, for Mfcc and
 * for LOCAL_RESPONSE_NORMALIZATION only, and their results are rounded to float. */
#ifndef AOT_LIBM_H
#define AOT_LIBM_H

float ceilf(float x);
float floorf(float x);
float fmodf(float x, float y);
float rintf(float x);
float sqrtf(float x);
double exp(double x);
double log(double x);
double log1p(double x);
double pow(double x, double y);
double sqrt(double x);

#endif
