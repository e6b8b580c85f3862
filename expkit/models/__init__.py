"""The bundled models, one package a framework.

All packages give the same names, arguments, parameter paths and first weights.
"""
